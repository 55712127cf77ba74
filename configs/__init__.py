"""The configurations that `scalepod fit` runs, as package data."""
