"""The files of a deployment's folder and of a node's."""

SPEC, SCHEMA, DEPLOYMENT, NODE = "spec.yaml", "schema.json", "deployment.json", "node.json"
