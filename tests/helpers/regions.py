"""Problems that hold between any two points: streets, triangles, squares and meshes, on a plane and on the earth."""

import json

ROADS = "from,to,km\na,b,0.4\nb,c,0.7\nc,a,0.9\nc,d,1.3\nc,d,1.1\nd,far,0.2\nb,b,0.3\n"
SQUARE = {
    "type": "Polygon",
    "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]], [[0.6, 0.6], [1.6, 0.6], [1.6, 1.6], [0.6, 0.6]]],
}
EARTH = {"type": "Polygon", "coordinates": [[[12.4, 41.8], [12.43, 41.8], [12.43, 41.82], [12.4, 41.8]]]}
FILES = {
    "roads.csv": ROADS,
    "nodes.csv": "id\na\nb\nc\nd\n",
    "points.csv": "id,x,y\na,0,0\nb,1,0\nc,0.4,0.9\nd,1.3,1.1\ne,0.5,0.4\n",
    "earth.csv": "id,lat,lon\na,41.80,12.40\nb,41.80,12.41\nc,41.81,12.405\nd,41.815,12.42\n",
    "square.geojson": json.dumps(SQUARE),
    "earth.geojson": json.dumps(EARTH),
}
KINDS = {
    "graph": ('points = "nodes.csv"', 'kind = "graph"\nedges = "roads.csv"', ""),
    "graph-halved": ('points = "nodes.csv"', 'kind = "graph"\nedges = "roads.csv"', "split_km = 0.25"),
    "points": ('points = "points.csv"', 'kind = "euclidean"', ""),
    "grid": ("grid = { rows = 3, cols = 3, cell_km = 0.5 }", 'kind = "euclidean"', ""),
    "grid-finer": ("grid = { rows = 3, cols = 3, cell_km = 0.5 }", 'kind = "euclidean"', "split_km = 0.4"),
    "globe": ('points = "earth.csv"', 'kind = "haversine"', ""),
    "globe-grid": ("grid = { rows = 3, cols = 2, cell_km = 0.5, south_west = [41.8, 12.4] }", 'kind = "haversine"', ""),
    "mesh": ('mesh = { region = "square.geojson", side_km = 0.5, planar = true }', 'kind = "euclidean"', ""),
    "mesh-earth": ('mesh = { region = "earth.geojson", side_km = 1.2 }', 'kind = "euclidean"', ""),
}


def write(folder, records, distance, privacy="", *, epsilon="1.5", utility='kind = "distance"', extra=""):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, "utf-8")
    problem = folder / "p.toml"
    problem.write_text(
        f"[records]\n{records}\n[distance]\n{distance}\n[privacy]\nepsilon = {epsilon}\neverywhere = true\n{privacy}\n"
        f"[utility]\n{utility}\n{extra}\n",
        "utf-8",
    )
    return problem
