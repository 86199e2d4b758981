"""kvpress's classes on the tensors of a dump."""
