"""The files that a dump and a cache file are."""
