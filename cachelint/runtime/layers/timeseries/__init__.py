"""Forecasting engines."""
