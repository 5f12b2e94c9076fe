// What a dashboard's JSON must look like: Grafana's published types, put together and made plain.
// Grafana publishes no type for Prometheus queries in this version; ours names what we use.

import type { AnnotationQuery, Dashboard, DataQuery, Panel, RowPanel } from "@grafana/schema";
import type { Options as Stat } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen.d.ts";
import type { Options as Table } from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen.d.ts";
import type { Options as Text } from "@grafana/schema/dist/esm/raw/composable/text/panelcfg/x/TextPanelCfg_types.gen.d.ts";
import type {
  FieldConfig as LineField,
  Options as Lines,
} from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.d.ts";

interface PromQuery extends DataQuery {
  expr: string;
  legendFormat?: string;
  format?: "time_series" | "table" | "heatmap";
  instant?: boolean;
  range?: boolean;
  exemplar?: boolean;
}

type Of<Type extends string, Options, Field = Record<string, never>> = Omit<
  Panel,
  "type" | "options" | "targets" | "fieldConfig"
> & {
  type: Type;
  options: Options;
  targets?: PromQuery[];
  fieldConfig?: Omit<NonNullable<Panel["fieldConfig"]>, "defaults"> & {
    defaults: Omit<NonNullable<Panel["fieldConfig"]>["defaults"], "custom"> & { custom?: Field };
  };
};

// JSON holds the values of enums, not the enums.
type Plain<T> = T extends string
  ? `${T}`
  : T extends (infer Item)[]
    ? Plain<Item>[]
    : T extends object
      ? { [Key in keyof T]: Plain<T[Key]> }
      : T;

export type Board = Plain<
  Omit<Dashboard, "panels" | "annotations"> & {
    annotations: { list: AnnotationQuery<PromQuery>[] };
    panels: (
      | (Omit<RowPanel, "type"> & { type: "row" })
      | Of<"stat", Stat>
      | Of<"table", Table>
      | Of<"text", Text>
      | Of<"timeseries", Lines, LineField>
    )[];
  }
>;
