"""How many examples property tests take."""

from hypothesis import settings


def examples(most: int) -> settings:
    """Return settings for ``most`` examples in ``make explore``, a quarter of them elsewhere.

    Elsewhere they are the same ones every time, so more of them find nothing new.
    """
    return settings(max_examples=num_examples(most), deadline=None)


def num_examples(most: int) -> int:
    """Return ``most`` in ``make explore``, and a quarter of it elsewhere."""
    is_fresh = settings.get_current_profile_name() == "fresh"
    return most if is_fresh else max(5, most // 4)
