"""What all pictures share: axes, colors that everybody can tell apart, and checks that name the argument."""

from collections.abc import Sequence
from typing import Any

import numpy as np

# Okabe and Ito (2008); yellow comes late because it is faint on white
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C6D31", "#F0E442", "#555555")
INK, FAINT = "#333333", "#999999"


def pyplot() -> Any:
    """matplotlib's interface, imported when the first picture is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plotting needs matplotlib: pip install 'probml_jax[plot]'") from error
    return plt


def axes(ax: Any) -> Any:
    """`ax`, or the current axes; lines of empty ones take the colors of the palette in turn."""
    plt = pyplot()
    ax = plt.gca() if ax is None else ax
    if not ax.has_data():
        ax.set_prop_cycle(color=list(PALETTE))
    return ax


def colors(num: int) -> np.ndarray:
    """`num` colors as rows of red, green and blue; they repeat after nine."""
    pyplot()
    from matplotlib.colors import to_rgb

    return np.array([to_rgb(PALETTE[k % len(PALETTE)]) for k in range(num)]).reshape(num, 3)


def array(name: str, x: Any, rank: int, wanted: str) -> np.ndarray:
    """A NumPy array of the wanted rank, or an error that names it."""
    x = np.asarray(x)
    if x.ndim != rank:
        raise ValueError(f"{name} has shape {x.shape}; wanted {wanted}.")
    return x


def names_of(names: Sequence[str] | None, num: int, what: str) -> list[str]:
    """`names`, or the numbers 0, 1, ... if there are none."""
    if names is None:
        return [str(k) for k in range(num)]
    if len(names) != num:
        raise ValueError(f"names has {len(names)} entries for {num} {what}.")
    return [str(name) for name in names]


def several(values: Any) -> dict[str, Any]:
    """A dictionary of curves as it is; one array as a curve without a name."""
    return dict(values) if isinstance(values, dict) else {"": values}


def labelled(name: str, text: str) -> str:
    """An entry of a legend: the name of a curve, if it has one, and a number."""
    return f"{name}: {text}" if name else text


def heat_map(ax: Any, values: np.ndarray, *, cmap: str = "Blues", low: float = 0.0, high: float = 1.0) -> Any:
    """A matrix as colored cells, without ticks' marks."""
    image = ax.imshow(values, cmap=cmap, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    ax.tick_params(length=0)
    return image


def annotate_cells(ax: Any, values: np.ndarray, show: str, dark: float) -> None:
    """Numbers in the cells of a heat map, white where the cell is dark."""
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            ax.text(j, i, format(value, show), ha="center", va="center", color="w" if abs(value) > dark else INK)
