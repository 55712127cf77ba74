"""Watch the attention of a transformer while it trains: wavelet scales, POD modes, spectral complexity."""
