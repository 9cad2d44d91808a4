"""Training objectives. Names: `laconic.config.names.OBJECTIVES`."""
