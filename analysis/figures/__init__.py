"""Figures for reports and papers."""
