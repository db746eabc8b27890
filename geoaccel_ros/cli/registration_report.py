"""What is said of a registration: for machines, and as text for people."""

import numpy as np

from geoaccel_ros.registration import Registration, se3

_TIMINGS = ("preprocess", "upload", "tree", "iterations", "total")


def describe(
    found: Registration, source: np.ndarray, read_ms: float, truth: np.ndarray | None
) -> dict:
    """Return a registration as numbers and lists of them, ready for JSON.

    Parameters
    ----------
    found : Registration
    source : ndarray (N, 3), metres
    read_ms : float
        Milliseconds for reading both clouds.
    truth : ndarray (4, 4) or None
        True T_target_source.
    """
    result = {
        "T_target_source": found.T_target_source.ravel().tolist(),
        "converged": found.converged,
        "reason": found.reason,
        "iterations": found.iterations,
        "rmse_m": found.rmse,
        "inliers": found.inliers,
        "kept": found.kept,
        "overlap": found.overlap,
        "overlap_before": found.overlap_before,
        "max_distance_m": found.max_distance,
        "overlap_distance_m": found.overlap_distance,
        "backend": found.backend,
        "warnings": [found.warning] if found.warning else [],
        # Nothing was uploaded or aligned where a cloud has too few points.
        "timings_ms": {
            "read": read_ms,
            **{name: found.timings.get(name, 0.0) for name in _TIMINGS},
        },
    }
    if truth is not None:
        result |= errors(found.T_target_source, truth, centre(source))
    return result | {
        "trace_m": found.trace.tolist(),
        "hessian": found.hessian.tolist(),
        "degenerate": found.degenerate.tolist(),
    }


def errors(T_target_source: np.ndarray, truth: np.ndarray, point: np.ndarray) -> dict[str, float]:
    """Return how far a transform is from the true one.

    Returns
    -------
    dict of str to float
        error_m, at the source's origin; error_deg; error_centre_m, at ``point``: far from the
        origin, as UTM coordinates are, the smallest rotation moves the origin by metres.
    """
    error = se3.inverse(truth) @ T_target_source
    return {
        "error_m": float(np.linalg.norm(error[:3, 3])),
        "error_deg": float(np.degrees(np.linalg.norm(se3.log_rotation(error[:3, :3])))),
        "error_centre_m": float(np.linalg.norm(se3.apply(error, point[None]) - point)),
    }


def centre(points: np.ndarray) -> np.ndarray:
    """Return the mean (3,) of the points that are finite; the origin if there are none."""
    points = points[np.isfinite(points).all(axis=1)]
    return points.mean(axis=0, dtype=np.float64) if len(points) else np.zeros(3)


def page(content: dict) -> str:
    """Return the one registration of ``content``, a line for each result.

    Parameters
    ----------
    content : dict
        backend_reason, and what :func:`describe` returned.
    """
    rows = np.reshape(content["T_target_source"], (4, 4))
    length, angle = _motion(content)
    lines = {
        "T_target_source": "\n".join(" ".join(f"{v:14.8f}" for v in row) for row in rows),
        "motion": f"translation {length:.4g} m, rotation {angle:.4g} degrees",
        "converged": f"{_yes(content)}: {content['reason']} ({content['iterations']} iterations)",
    }
    if np.isfinite(content["rmse_m"]):
        lines["rmse"] = f"{content['rmse_m']:.4g} m"
    if np.isfinite(content["max_distance_m"]):
        lines["inliers"] = (
            f"{content['inliers']}, {_percent(content['kept'])} of the matches within "
            f"{content['max_distance_m']:.3g} m"
        )
        before, after = _percent(content["overlap_before"]), _percent(content["overlap"])
        near = f"{content['overlap_distance_m']:.3g} m"
        lines["overlap"] = f"{before} before, {after} after, within {near}"
    if "error_m" in content:
        lines["error"] = (
            f"{content['error_m']:.4g} m at the source's origin, {content['error_centre_m']:.4g} m "
            f"at its centre, {content['error_deg']:.4g} degrees"
        )
    lines["backend"] = f"{content['backend']} ({content['backend_reason']})"
    lines["timings [ms]"] = ", ".join(f"{k} {v:.1f}" for k, v in content["timings_ms"].items())
    indent = "\n" + 17 * " "
    return "\n".join(f"{name:17}{text}".replace("\n", indent) for name, text in lines.items())


def table(content: dict) -> str:
    """Return a row for each registration of ``content``, and what was measured of all.

    Parameters
    ----------
    content : dict
        backend, backend_reason, frames_per_second, frames_per_second_overlapped, and registrations:
        what :func:`describe` returned, with source.
    """
    found = content["registrations"]
    columns = {
        "source": [one["source"] for one in found],
        "converged": [_yes(one) for one in found],
        "iterations": [str(one["iterations"]) for one in found],
        "rmse [m]": [f"{one['rmse_m']:.4f}" for one in found],
        "inliers": [str(one["inliers"]) for one in found],
        "kept": [_percent(one["kept"]) for one in found],
        "overlap before": [_percent(one["overlap_before"]) for one in found],
        "after": [_percent(one["overlap"]) for one in found],
        "translation [m]": [f"{_motion(one)[0]:.3f}" for one in found],
        "rotation [deg]": [f"{_motion(one)[1]:.3f}" for one in found],
        "total [ms]": [f"{one['timings_ms']['total']:.1f}" for one in found],
    }
    if "error_m" in found[0]:
        columns["error [m]"] = [f"{one['error_m']:.4f}" for one in found]
        columns["error [deg]"] = [f"{one['error_deg']:.4f}" for one in found]
    widths = [max(map(len, [name, *cells])) for name, cells in columns.items()]
    lines = []
    for row in [tuple(columns), *zip(*columns.values(), strict=True)]:
        cells = [f"{row[0]:{widths[0]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells))
    lines += [f"{one['source']}: {one['reason']}" for one in found if not one["converged"]]
    rate = f"{content['frames_per_second']:.4g} frames a second"
    if content["frames_per_second_overlapped"] is not None:
        rate += f", {content['frames_per_second_overlapped']:.4g} overlapped"
    lines.append(f"{rate}; {content['backend']} ({content['backend_reason']})")
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def _yes(result: dict) -> str:
    return "yes" if result["converged"] else "no"


def _motion(result: dict) -> tuple[float, float]:
    """Return the length of the translation in metres and the angle of the rotation in degrees."""
    transform = np.reshape(result["T_target_source"], (4, 4))
    angle = np.linalg.norm(se3.log_rotation(transform[:3, :3]))
    return float(np.linalg.norm(transform[:3, 3])), float(np.degrees(angle))
