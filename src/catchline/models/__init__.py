"""Whole models. Names: `catchline.config.names.MODELS`."""
