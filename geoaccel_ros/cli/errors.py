"""What the user did wrong, in one line."""


class UserError(Exception):
    """A mistake that the user can mend; the message names it and the remedy."""
