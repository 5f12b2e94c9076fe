"""Write the JSON of every dashboard to where it is shipped from, and say which changed."""

from deploy.grafana.build.write import write

if __name__ == "__main__":
    for path in write():
        print(f"wrote {path}")
