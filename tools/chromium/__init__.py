"""Chromium without a window, for tests of web pages and for pictures of them."""
