"""Grafana dashboards as code: `python -m deploy.grafana.build` writes their JSON."""
