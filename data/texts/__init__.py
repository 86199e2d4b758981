"""The models and texts of data/make_dumps.py, and the fingerprints of their dumps."""
