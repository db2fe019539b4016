/* Where arrays live, in Shardy's words and in GSPMD's. */
#include "hlo_builder/write/write.h"

void hlo__put_mesh(hlo_writer *w)
{
    const hlo_mesh_info *mesh = hlo__mesh(w->g);
    PUT(w, "<[");
    for (int i = 0; i < mesh->n; i++) {
        hlo__put_str(w, i > 0 ? ", " : "");
        hlo__put_quoted(w, mesh->names[i]);
        PUT(w, "=");
        hlo__put_int(w, mesh->sizes[i]);
    }
    PUT(w, "]>");
}

void hlo__put_sharding(hlo_writer *w, const hlo_spec *spec, int rank)
{
    const hlo_mesh_info *mesh = hlo__mesh(w->g);
    int axes[HLO_MAX_AXES];
    PUT(w, "<@mesh, [");
    for (int i = 0; i < rank; i++) {
        int n = hlo__spec_axes(mesh, spec->axes[i], axes);
        hlo__put_str(w, i == 0 ? "{" : ", {");
        for (int k = 0; k < n; k++) {
            if (k > 0)
                PUT(w, ", ");
            hlo__put_quoted(w, mesh->names[axes[k]]);
        }
        PUT(w, "}");
    }
    PUT(w, "]>");
}

void hlo__put_shardings(hlo_writer *w, const hlo_spec *specs, hlo_value *const *values, int n)
{
    for (int i = 0; i < n; i++) {
        hlo__put_str(w, i > 0 ? ", " : "");
        hlo__put_sharding(w, &specs[i], values[i]->shape.rank);
    }
}

void hlo__put_manual_axes(hlo_writer *w)
{
    const hlo_mesh_info *mesh = hlo__mesh(w->g);
    PUT(w, "{");
    for (int i = 0; i < mesh->n; i++) {
        hlo__put_str(w, i > 0 ? ", " : "");
        hlo__put_quoted(w, mesh->names[i]);
    }
    PUT(w, "}");
}

/*
 * {devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}: the devices, numbered along the mesh, are
 * laid out with the axes in the order in which the dimensions use them, the unused ones last.
 */
void hlo__put_gspmd(hlo_writer *w, const hlo_spec *spec, int rank)
{
    const hlo_mesh_info *mesh = hlo__mesh(w->g);
    int order[HLO_MAX_AXES], n_order = 0;
    unsigned used = 0;
    int64_t tiles[HLO_MAX_RANK], split = 1, devices = 1;
    for (int i = 0; i < rank; i++) {
        int axes[HLO_MAX_AXES], n = hlo__spec_axes(mesh, spec->axes[i], axes);
        tiles[i] = 1;
        for (int k = 0; k < n; k++) {
            tiles[i] *= mesh->sizes[axes[k]];
            used |= 1u << axes[k];
            order[n_order++] = axes[k];
        }
        split *= tiles[i];
    }
    bool in_order = true;
    for (int i = 0; i < mesh->n; i++) {
        devices *= mesh->sizes[i];
        if (!(used & 1u << i))
            order[n_order++] = i;
    }
    for (int i = 0; i < mesh->n; i++)
        in_order = in_order && order[i] == i;
    if (split == 1) {
        PUT(w, "\"{replicated}\"");
        return;
    }
    PUT(w, "\"{devices=[");
    for (int i = 0; i < rank; i++) {
        hlo__put_int(w, tiles[i]);
        hlo__put_str(w, i + 1 < rank ? "," : "");
    }
    if (split < devices) {
        PUT(w, ",");
        hlo__put_int(w, devices / split);
    }
    PUT(w, "]<=[");
    for (int i = 0; i < mesh->n && !in_order; i++) {
        hlo__put_str(w, i > 0 ? "," : "");
        hlo__put_int(w, mesh->sizes[i]);
    }
    if (in_order)
        hlo__put_int(w, devices);
    for (int i = 0; i < mesh->n && !in_order; i++) {
        hlo__put_str(w, i > 0 ? "," : "]T(");
        hlo__put_int(w, order[i]);
    }
    hlo__put_str(w, in_order ? "]" : ")");
    if (split < devices)
        PUT(w, " last_tile_dim_replicate");
    PUT(w, "}\"");
}
