"""Copy heads, one a file. Names: `catchline.config.names.COPY_HEADS`."""
