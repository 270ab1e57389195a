"""The operations of this feature in the admin API."""

from __future__ import annotations

from xds.admin.operations import ANY, ETAG, OWNED, Operation

_REGISTRATION = "services.registrations.RegisteredInstance"

# Bindings
LIST_BINDINGS = Operation("GET /groups/{group}/bindings", "services.services.BindingPage")
GET_BINDING = Operation("GET /groups/{group}/bindings/{assignment}", "services.services.BindingState", ETAG)
PUT_BINDING = Operation("PUT /groups/{group}/bindings/{assignment}", "services.services.BindingState", ETAG, OWNED)
DELETE_BINDING = Operation("DELETE /groups/{group}/bindings/{assignment}", "services.services.BindingDeleted")

# Services
LIST_SERVICES = Operation("GET /services", "services.services.ServiceSummaryPage")
GET_SERVICE = Operation("GET /services/{name}", "services.services.ServiceDetail")
ACCEPT_LOSSES = Operation("POST /sources/{name}/accept", "services.services.AcceptedLosses")

# Registrations
LIST_REGISTRATIONS = Operation("GET /registrations", "services.registrations.RegistrationPage")
GET_REGISTRATION = Operation("GET /registrations/{id}", _REGISTRATION)
PUT_REGISTRATION = Operation("PUT /registrations/{id}", _REGISTRATION, scope=ANY)
DELETE_REGISTRATION = Operation("DELETE /registrations/{id}", "services.registrations.RegistrationDeleted", scope=ANY)
BEGIN_MAINTENANCE = Operation("PUT /registrations/{id}/maintenance", _REGISTRATION, scope=ANY)
END_MAINTENANCE = Operation("DELETE /registrations/{id}/maintenance", _REGISTRATION, scope=ANY)

# Sources
LIST_SOURCES = Operation("GET /sources", "services.sources.SourcePage")
GET_SOURCE = Operation("GET /sources/{name}", "services.sources.SourceState")
