"""Character-level text for Lightning: any file, TinyShakespeare, and synthetic text of known scales."""
