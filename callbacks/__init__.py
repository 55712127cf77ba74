"""Lightning callbacks."""

from .scale_pod import ScalePODCallback, ScalePODWarning

__all__ = ["ScalePODCallback", "ScalePODWarning"]
