"""The importer: arrays of any program as a dump."""
