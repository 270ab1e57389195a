import { API, calm, get, headers, tell } from "./admin_api.js";

async function show() {
  try {
    const spec = await get("/openapi.json");
    calm();
    window.SwaggerUIBundle({
      spec,
      dom_id: "#description",
      deepLinking: true,
      docExpansion: "list",
      filter: true,
      tryItOutEnabled: false,
      validatorUrl: null,
      requestInterceptor: (request) => {
        // Only requests to this server carry the token.
        if (new URL(request.url, location.href).origin === location.origin) Object.assign(request.headers, headers());
        return request;
      },
    });
  } catch (error) {
    tell(error, show);
  }
}

document.title = `xds-server: ${API}`;
show();
