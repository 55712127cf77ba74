"""Transformers whose attention scalepod was made to compare, as plain modules and as LightningModules."""
