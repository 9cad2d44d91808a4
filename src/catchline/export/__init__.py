"""From a model folder to graphs that run without torch."""
