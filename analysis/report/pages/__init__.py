"""What stands on the pages of `report.html`, in which order, and how it looks."""
