"""Runs side by side, and in words: tables, significance of differences, a report that can be sent around."""
