"""The closed loop: a model that decodes over compressed caches."""
