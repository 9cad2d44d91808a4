"""Measures of summaries. No tensor library is imported here."""
