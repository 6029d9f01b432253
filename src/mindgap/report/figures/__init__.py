"""How each kind of chart becomes a Plotly figure."""
