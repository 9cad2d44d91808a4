"""Training objectives. Names: `catchline.config.names.OBJECTIVES`."""
