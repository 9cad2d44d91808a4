"""The record of a decoded summary, and its views in the terminal and as one HTML page."""
