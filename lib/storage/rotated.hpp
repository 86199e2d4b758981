// Any codec behind a rotation: x -> M x before it is encoded, M^T after it is decoded, the same M
// for all vectors of a KV head; inner products stay. Source: QuaRot, Ashkboos et al., arXiv
// 2404.00456, for Hadamard matrices.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "storage/codec.hpp"
#include "storage/orthogonal_map.hpp"

namespace kvbench {

// The parameter besides a codec's own: none, hadamard or haar.
inline constexpr const char* kRotateName = "rotate";
Parameter rotate_parameter();
// Rotation of a checked value of it.
Rotation rotation_named(const std::string& rotate);

// Why vectors of that width cannot be rotated so, with the remedy.
std::optional<std::string> cannot_rotate(Rotation rotation, const StreamShape& shape,
                                         CacheTensor tensor);

// Whether it draws: cells with it differ by seed.
inline bool is_randomised(Rotation rotation) { return rotation == Rotation::kHaar; }

// `codec` itself for kNone. The matrix is drawn for "storage/rotate", so that it is independent of
// one that the codec draws; codecs that look at the stream when they are made (think, scales of a
// whole tensor) see what is not rotated: CodecFunctions::not_rotated.
std::unique_ptr<Codec> rotated(std::unique_ptr<Codec> codec, Rotation rotation,
                               const CodecContext& context);

}  // namespace kvbench
