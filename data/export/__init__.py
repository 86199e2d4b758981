"""The exporter: a transformers model's queries, keys and values."""
