"""The HTTP service and its page: one process, the models in memory, concurrent requests decoded together."""
