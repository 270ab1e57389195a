import { API, calm, get, headers, tell } from "./admin_api.js";
import { drawNavigation } from "./navigation.js";

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

// Swagger UI has its dark colors behind a class, the other pages follow the system by themselves.
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();
drawNavigation(location.pathname);
document.title = `xds-server: ${API}`;
show();
