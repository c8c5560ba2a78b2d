// Redocly's linter over descriptions of our APIs. Usage: node openapi.js NODE_MODULES FILE...
"use strict";
const path = require("path");
const [modules, ...files] = process.argv.slice(2);
const { createConfig, formatProblems, getTotals, lint } = require(path.join(modules, "@redocly/openapi-core"));

const settings = {
  extends: ["recommended"],
  rules: {
    "no-server-example.com": "off", // the document's own server is localhost:8080
    "info-license": "off", // the project has one, not each of its APIs
    "operation-2xx-response": "off", // a WebSocket's answer is 101
    "no-unused-components": "error",
    "operation-operationId-unique": "error",
    "operation-4xx-response": "error",
    "no-ambiguous-paths": "error",
  },
};

async function main() {
  let bad = 0;
  for (const file of files) {
    const config = await createConfig(settings);
    const problems = await lint({ ref: path.resolve(file), config });
    const totals = getTotals(problems);
    formatProblems(problems, { format: "codeframe", totals, version: "" });
    bad += totals.errors + totals.warnings;
    console.log(`${file}: ${totals.errors} errors, ${totals.warnings} warnings`);
  }
  process.exit(files.length === 0 || bad > 0 ? 1 : 0);
}

main();
