"""Number formats, how results are rounded and combined; knows neither instructions nor threads."""
