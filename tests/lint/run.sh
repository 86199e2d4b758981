#!/usr/bin/env bash
# ./bootstrap.sh lint [all|--fix]: formats, Python's lint and types, subjects of commits, and clang-tidy on what
# changed, or on all; --fix formats. Every check runs, also after one that fails. A missing tool is a failure.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"

# Files of the checkout, committed or not, that match the patterns.
sources() {
  local path
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r path; do
    if [[ -f $path ]]; then printf '%s\0' "$path"; fi
  done
}

tidy() {
  local units
  configure tidy
  cmake --build build-tidy --target kvbench_git_info >/dev/null || return 1
  units=$(python3 -B tests/lint/units.py build-tidy "$@") || return 1
  [[ -n $units ]] || return 0
  tr '\n' '\0' <<<"$units" | sed -z '/^$/d' |
    xargs -0 -n 1 -P "$(nproc)" "clang-tidy-$llvm" --quiet -p build-tidy \
      2> >(grep -v 'warnings generated' >&2)
}

packages+=("clang-format-$llvm" "clang-tidy-$llvm" "clang-$llvm" "libomp-$llvm-dev" git)
deps
environment .venv-tools lint
for tool in git "clang-format-$llvm" "clang-tidy-$llvm" "clang++-$llvm"; do
  command -v "$tool" >/dev/null || die "$tool is not installed"
done
git rev-parse --verify --quiet HEAD >/dev/null || die "$PWD is not a git checkout"
export PATH=$PWD/.venv-tools/bin:$PATH
code=('*.cpp' '*.hpp' '*.cu' '*.cuh') formatted=(apps plots data tests/lint) failed=()
if [[ ${1:-} == --fix ]]; then
  sources "${code[@]}" | xargs -0 "clang-format-$llvm" -i
  ruff check --quiet --fix apps plots data tests || failed+=("ruff check")
  ruff format --quiet "${formatted[@]}"
else
  sources "${code[@]}" | xargs -0 "clang-format-$llvm" --dry-run -Werror || failed+=(clang-format)
  ruff check --quiet apps plots data tests || failed+=("ruff check")
  ruff format --quiet --check "${formatted[@]}" || failed+=("ruff format")
  mypy --no-error-summary apps/python/kvbench apps/site/*.py plots/kvplot data \
    tests/lint/*.py || failed+=(mypy)
  python3 -B tests/lint/subjects.py || failed+=("subjects of commits")
  python3 -B tests/lint/prose.py || failed+=("sentences of pages")
  cffconvert --validate >/dev/null || failed+=(CITATION.cff)
  tidy "$@" || failed+=(clang-tidy)
fi
[[ ${#failed[@]} == 0 ]] || die "lint: failed: $(printf '%s, ' "${failed[@]}" | sed 's/, $//')"
