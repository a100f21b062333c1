// Swagger UI on this instance's document. Whoever has no key and needs none (logged in, or at the machine of
// an embedded instance) proves with each change that this page sends it.
"use strict";

const SAFE = ["GET", "HEAD", "OPTIONS"];

async function withToken(request) {
  const method = (request.method || "GET").toUpperCase();
  if (SAFE.includes(method) || request.headers.Authorization) return request;
  const answer = await fetch(document.body.dataset.token, { headers: { Accept: "application/json" } });
  // Without a token the request is sent as it is, and its answer says what is missing.
  if (answer.ok) request.headers["X-CSRF-Token"] = (await answer.json()).csrf_token;
  return request;
}

// What another address answers cannot be tried from here: the policy of this site lets no page of it ask there.
const TriedHereAlone = () => ({
  statePlugins: {
    spec: {
      wrapSelectors: {
        allowTryItOutFor: (allows) => (state, path, method) =>
          !state.hasIn(["json", "paths", path, "servers"]) && allows(state, path, method),
      },
    },
  },
});

window.ui = SwaggerUIBundle({
  url: document.body.dataset.document,
  dom_id: "#viewer",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  tryItOutEnabled: false,
  validatorUrl: null,
  requestInterceptor: withToken,
  plugins: [TriedHereAlone],
});
