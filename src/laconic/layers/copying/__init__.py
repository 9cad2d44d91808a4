"""Copy heads, one a file. Names: `laconic.config.names.COPY_HEADS`."""
