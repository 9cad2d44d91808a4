"""Attention mechanisms, one a file. Names: `catchline.config.names.ATTENTIONS`."""
