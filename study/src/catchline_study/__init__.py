"""What is there to study: comparisons, tuning, attention as alignment, human evaluation, calibration, corpora."""
