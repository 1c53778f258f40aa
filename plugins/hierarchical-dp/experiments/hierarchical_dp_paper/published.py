"""What the paper's Table 7 says."""

from __future__ import annotations

from typing import Final

__all__ = ["TABLE_7"]

TABLE_7: Final[dict[tuple[str, float, str], tuple[float, float, float, int]]] = {
    ("taxi", 0.1, "hierarchical-relaxed"): (25.4, 158.7, 904.4, 18206),
    ("taxi", 0.1, "hierarchical-dp"): (26.6, 121.9, 915.7, 0),
    ("taxi", 0.1, "cumulative-relaxed"): (47.9, 153.2, 551.6, 19460),
    ("taxi", 0.1, "cumulative-dp"): (19.9, 65.6, 644.3, 0),
    ("taxi", 0.1, "cumulative-chain-as-published"): (5.5, 39.3, 537.8, 0),
    ("taxi", 0.1, "top-down"): (26.6, 93.0, 809.1, 0),
    ("taxi", 0.5, "hierarchical-relaxed"): (8.6, 81.2, 364.2, 18591),
    ("taxi", 0.5, "hierarchical-dp"): (5.5, 31.0, 408.9, 0),
    ("taxi", 0.5, "cumulative-relaxed"): (46.7, 153.5, 450.7, 19531),
    ("taxi", 0.5, "cumulative-dp"): (4.0, 16.4, 352.9, 0),
    ("taxi", 0.5, "cumulative-chain-as-published"): (1.2, 9.5, 150.6, 0),
    ("taxi", 0.5, "top-down"): (5.3, 20.3, 242.1, 0),
    ("taxi", 1.0, "hierarchical-relaxed"): (7.7, 77.2, 279.0, 18085),
    ("taxi", 1.0, "hierarchical-dp"): (3.1, 19.8, 328.5, 0),
    ("taxi", 1.0, "cumulative-relaxed"): (47.1, 154.2, 447.1, 19706),
    ("taxi", 1.0, "cumulative-dp"): (2.0, 8.7, 307.8, 0),
    ("taxi", 1.0, "cumulative-chain-as-published"): (0.5, 4.5, 78.6, 0),
    ("taxi", 1.0, "top-down"): (2.6, 10.3, 138.4, 0),
    ("census", 0.1, "hierarchical-relaxed"): (40.3, 54.3, 802.1, 1966),
    ("census", 0.1, "hierarchical-dp"): (10.3, 38.4, 825.4, 0),
    ("census", 0.1, "cumulative-relaxed"): (23.1, 64.5, 632.2, 1715),
    ("census", 0.1, "cumulative-dp"): (0.9, 23.2, 550.6, 0),
    ("census", 0.1, "cumulative-chain-as-published"): (0.2, 13.9, 603.0, 0),
    ("census", 0.1, "top-down"): (3.7, 35.0, 820.5, 0),
    ("census", 0.5, "hierarchical-relaxed"): (39.4, 37.9, 216.3, 1990),
    ("census", 0.5, "hierarchical-dp"): (2.4, 9.4, 230.8, 0),
    ("census", 0.5, "cumulative-relaxed"): (23.1, 61.0, 494.2, 1718),
    ("census", 0.5, "cumulative-dp"): (0.2, 5.8, 159.1, 0),
    ("census", 0.5, "cumulative-chain-as-published"): (0.0, 3.4, 165.3, 0),
    ("census", 0.5, "top-down"): (0.9, 8.6, 228.4, 0),
    ("census", 1.0, "hierarchical-relaxed"): (40.7, 39.2, 130.0, 1989),
    ("census", 1.0, "hierarchical-dp"): (1.2, 5.1, 128.8, 0),
    ("census", 1.0, "cumulative-relaxed"): (24.1, 63.0, 494.5, 1728),
    ("census", 1.0, "cumulative-dp"): (0.1, 3.2, 91.0, 0),
    ("census", 1.0, "cumulative-chain-as-published"): (0.0, 1.7, 86.9, 0),
    ("census", 1.0, "top-down"): (0.5, 4.6, 127.2, 0),
}
"""L1 errors by level (Census x 1000, Taxi x 10^4) and constraint violations."""
