// Shows the API, and tries it out with a token that the reader enters under Authorize.

SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#operations",
  deepLinking: true,
  displayRequestDuration: true,
  filter: true,
  persistAuthorization: false, // a token is never kept by the browser
  tryItOutEnabled: true,
  validatorUrl: null, // the document is sent nowhere
});
