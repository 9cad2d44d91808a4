"""What changes or ranks hypotheses during search, one mechanism a file."""
