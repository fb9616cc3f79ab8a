"""Frank-Wolfe: block-coordinate (BCFW), as published and with planes that are kept, and batch."""
