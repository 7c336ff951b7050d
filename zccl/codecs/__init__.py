"""The host side of compression: sizes, headers, kernel calls."""
