"""What the benchmarks compare with."""
