"""What the logged values are called where people read them."""

import re

UNITS = {"mean_lag": "tokens", "dominant_lag": "tokens"}
"""Units of the values that have one."""

_PLAIN = {"mean_lag": "mean lag", "dominant_lag": "dominant lag", "energy": "energy of the fluctuation"}


def title_of(quantity: str) -> str:
    """Name of a value in words, without its unit.

    Example:
        >>> title_of("lag_h_star_0.10"), title_of("t_spec"), title_of("band_fine")
        ('lag H*(0.10)', 'field T_spec', 'share of energy, fine')
        >>> title_of("lag_t_spec_fine"), title_of("mode_stability")
        ('lag T_spec, fine', 'mode stability')
    """
    if quantity in _PLAIN:
        return _PLAIN[quantity]
    if quantity.startswith("band_"):
        return f"share of energy, {quantity.removeprefix('band_')}"
    if found := re.fullmatch(r"(lag_)?(?:h_star_([\d.]+)|t_spec)(?:_(.+))?", quantity):
        kind, window = "lag" if found[1] else "field", f", {found[3]}" if found[3] else ""
        return f"{kind} {f'H*({found[2]})' if found[2] else 'T_spec'}{window}"
    return quantity.replace("_", " ")


def meaning_of(quantity: str) -> str:
    """What a value that tables show says, in a few words.

    Example:
        >>> meaning_of("lag_h_star_0.10")
        'lag patterns that hold 90 % of the energy'
    """
    if found := re.fullmatch(r"(lag_)?h_star_([\d.]+)", quantity):
        what = "lag patterns" if found[1] else "attention maps"
        counts = "" if found[1] else "; counts documents rather than structure"
        return f"{what} that hold {100 * (1 - float(found[2])):.4g} % of the energy{counts}"
    return _BAND if quantity.startswith("band_") else _MEANINGS[quantity]


_BAND = "share of the fluctuation's energy in the lags of the band"
_MEANINGS = {
    "mean_lag": "how many tokens back the attention differs between documents, on average",
    "dominant_lag": "lag of the highest peak of the scalogram; none where no scale stands out",
    "lag_t_spec": "how slowly the spectrum of lag patterns decays; larger is more complex",
    "t_spec": "how slowly the spectrum of whole attention maps decays; depends on the number of documents",
    "energy": "mean square difference of a document's attention from the mean; grows with the length",
}
