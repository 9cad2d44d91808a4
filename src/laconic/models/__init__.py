"""Whole models. Names: `laconic.config.names.MODELS`."""
